join-title = 您即將加入排隊
join-lead = 按照加入的先後順序入場。
join-button = 加入排隊
scheduled-title = 尚未開放
scheduled-lead = 您的位置會保留。開放後依序入場。
draw-title = 尚未抽籤
draw-lead = 開放時，系統會為此前加入的每位訪客隨機抽取一個位置。之後加入的訪客排在後面。
drawn-lead = 系統已為開放前加入的每位訪客隨機抽取了位置，訪客依此順序進入。
late-lead = 抽籤已結束。現在加入的訪客依到達順序排在後面。
waiting-title = 您正在排隊
waiting-lead = 按照加入的先後順序入場。
almost-title = 馬上就到
almost-lead = 下一位就是您。請不要關閉本頁面。
paused-title = 排隊已暫停
paused-lead = 主辦方暫時停止入場。您的位置會保留。
admitted-title = 輪到您了
admitted-lead = 請在時間結束前進入。
admitted-button = 進入
full-title = 隊伍已滿
full-lead = 請稍後再試。
expired-title = 您的位置已失效
expired-lead = 本頁面長時間沒有聯繫，或者您的造訪已經結束。
left-title = 您已離開隊伍
left-lead = 您的位置已讓給下一位。
over-title = 排隊已關閉
over-lead = 主辦方已關閉排隊，不再入場。
lost-title = 連線中斷
lost-lead = 連線已中斷。您的位置會保留，本頁面會自動重試。
offer-title = 在此裝置上接管您的位置
offer-lead = 此連結可將隊伍中的一個位置移到此裝置，僅限一次。目前持有該位置的裝置將失去它。
offer-button = 接管位置
moved-title = 您的位置已轉移
moved-lead = 另一台裝置已透過連結接管該位置並繼續排隊。此頁面及其連結不再通往該位置。
cookies-title = 請允許使用 Cookie
cookies-lead = 您的位置儲存在 Cookie 中，但瀏覽器沒有儲存。請允許本網站使用 Cookie，然後重新加入。
rejoin-button = 重新排隊
work-busy = 您的瀏覽器正在完成一個用來攔阻機器人的小任務。
work-wait = 一個小任務用來攔阻機器人。沒有 JavaScript 時，請等待 { $count } 秒，然後按下按鈕。
ahead = { $count ->
    [0] 您前面沒有人
   *[other] 您前面還有 { $count } 人
}
entrants = { $count ->
   *[other] { $count } 人參加抽籤
}
draw-link = 查核抽籤結果
receipt-link = 儲存憑證
wait-label = 預計等候
wait-soon = 不到 1 分鐘
wait-minutes = { $to ->
    [1] 約 { $to } 分鐘
   *[other] { $from }–{ $to } 分鐘
}
wait-hours = { $to ->
    [1] 約 { $to } 小時
   *[other] { $from }–{ $to } 小時
}
wait-unknown = 暫時未知
number-label = 您的號碼
progress-label = 加入以來的進度
opens-label = 距離開放
ends-label = 剩餘時間
updated-label = 最近更新
kept = 重新整理或關閉本頁面，您的位置都會保留。
check-button = 立即查看
auto-button = 自動更新
leave-button = 離開隊伍
move-title = 換一台裝置繼續
move-lead = 在另一台裝置上開啟此連結，並在那裡接管位置。連結只能使用一次，請勿給他人看。
soldout-title = 已領完
soldout-lead = 全部已被領取。
early-title = 尚未開放
early-lead = 開放後即可領取。此頁面會自動更新。
claim-title = 現在可以領取
claim-lead = 請立即領取。每人一份。
claim-button = 立即領取
claimed-title = 領取成功
claimed-lead = 請記下此代碼。在此瀏覽器中，本頁面會再次顯示它。
ended-title = 已結束
ended-lead = 這裡不能再領取。
serial-label = 您的序號
code-label = 您的代碼
remaining = { $count ->
    [0] 沒有剩餘
   *[other] 剩餘 { $count } 份
}
language-label = 語言
