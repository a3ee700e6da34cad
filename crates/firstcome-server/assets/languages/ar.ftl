join-title = أنت على وشك الانضمام إلى الطابور
join-lead = يدخل الزوار بحسب ترتيب وصولهم.
join-button = انضم إلى الطابور
scheduled-title = لم يُفتح بعد
scheduled-lead = مكانك محفوظ. يدخل الزوار بالترتيب ابتداءً من الافتتاح.
draw-title = لم تُجرَ القرعة بعد
draw-lead = عند الافتتاح تمنح القرعة كل زائر انضم حتى ذلك الحين مكانًا عشوائيًا. ومن ينضم لاحقًا يكون خلفهم.
drawn-lead = منحت القرعة كل زائر انضم قبل الافتتاح مكانًا عشوائيًا. ويدخل الزوار بهذا الترتيب.
late-lead = انتهت القرعة. من ينضم الآن يكون في الخلف حسب ترتيب الوصول.
waiting-title = أنت في الطابور
waiting-lead = يدخل الزوار بحسب ترتيب وصولهم.
almost-title = اقترب دورك
almost-lead = أنت التالي. أبقِ هذه الصفحة مفتوحة.
paused-title = الطابور متوقف مؤقتًا
paused-lead = أوقف المنظم الدخول في الوقت الحالي. مكانك محفوظ.
admitted-title = حان دورك
admitted-lead = ادخل قبل انتهاء الوقت.
admitted-button = ادخل
full-title = الطابور ممتلئ
full-lead = حاول مرة أخرى بعد قليل.
expired-title = انتهى مكانك
expired-lead = انقطع الاتصال بهذه الصفحة مدة طويلة، أو انتهت زيارتك.
left-title = لقد غادرت الطابور
left-lead = انتقل مكانك إلى الشخص التالي.
over-title = هذا الطابور مغلق
over-lead = أغلقه المنظم. لن يدخل أحد بعد الآن.
lost-title = لا يوجد اتصال
lost-lead = انقطع الاتصال. مكانك محفوظ، وتعيد هذه الصفحة المحاولة تلقائيًا.
cookies-title = يُرجى السماح بملفات تعريف الارتباط
cookies-lead = يُحفظ مكانك في ملف تعريف ارتباط، ولم يحفظه متصفحك. اسمح بها لهذا الموقع ثم انضم مرة أخرى.
rejoin-button = انضم مرة أخرى
work-busy = يحل متصفحك مهمة صغيرة تُبطئ الروبوتات.
work-wait = مهمة صغيرة تُبطئ الروبوتات. بدون JavaScript انتظر { $count } ث ثم اضغط الزر.
ahead = { $count ->
    [0] لا أحد أمامك
    [one] أمامك شخص واحد
    [two] أمامك شخصان
    [few] أمامك { $count } أشخاص
    [many] أمامك { $count } شخصًا
   *[other] أمامك { $count } شخص
}
entrants = { $count ->
    [zero] لا أحد في القرعة
    [one] شخص واحد في القرعة
    [two] شخصان في القرعة
    [few] { $count } أشخاص في القرعة
    [many] { $count } شخصًا في القرعة
   *[other] { $count } شخص في القرعة
}
draw-link = تحقّق من القرعة
wait-label = مدة الانتظار المتوقعة
wait-soon = أقل من دقيقة
wait-minutes = { $to ->
    [one] نحو دقيقة واحدة
    [two] نحو دقيقتين
    [few] من { $from } إلى { $to } دقائق
    [many] من { $from } إلى { $to } دقيقة
   *[other] من { $from } إلى { $to } دقيقة
}
wait-hours = { $to ->
    [one] نحو ساعة واحدة
    [two] نحو ساعتين
    [few] من { $from } إلى { $to } ساعات
   *[other] من { $from } إلى { $to } ساعة
}
wait-unknown = غير معروفة بعد
number-label = رقمك
progress-label = التقدم منذ انضمامك
opens-label = يُفتح خلال
ends-label = الوقت المتبقي
updated-label = آخر تحديث
kept = يبقى مكانك محفوظًا إذا أعدت تحميل هذه الصفحة أو أغلقتها.
check-button = تحقق الآن
auto-button = التحديث تلقائيًا
leave-button = غادر الطابور
move-title = تابع على جهاز آخر
move-lead = افتح هذا الرابط على الجهاز الآخر. إنه مكانك: لا تُرِه لأحد.
soldout-title = نفدت الكمية
soldout-lead = تم توزيع الجميع.
early-title = لم يُفتح بعد
early-lead = يمكنك الحصول عليه ابتداءً من الافتتاح. تُفتح هذه الصفحة تلقائيًا.
claim-title = يمكنك الحصول عليه الآن
claim-lead = احصل على نصيبك الآن. واحد لكل شخص.
claim-button = احصل عليه الآن
claimed-title = أصبح لك
claimed-lead = دوّن هذا الرمز. تعرضه هذه الصفحة مرة أخرى في هذا المتصفح.
ended-title = انتهى
ended-lead = لم يعد هناك ما يُوزَّع هنا.
serial-label = رقمك التسلسلي
code-label = رمزك
remaining = { $count ->
    [0] لم يبق شيء
    [one] بقي واحد
    [two] بقي اثنان
    [few] بقي { $count }
    [many] بقي { $count }
   *[other] بقي { $count }
}
language-label = اللغة
